/* rankc's main, to be called. */
int rankc_main(int argc, char **argv);
#define main rankc_main
#include "frontend/cli/main.c"
