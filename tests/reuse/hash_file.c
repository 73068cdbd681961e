/* hash_file FILE: the hash that a manifest has for such a file. For tests that forge one. */
#include <stdio.h>

#include "runtime/base/number/hash.h"

int main(int argc, char **argv) {
    char hex[RT_HASH_HEX];
    struct rt_reason why;
    if (argc != 2 || !rt_hash_file(argv[1], hex, &why)) return 1;
    puts(hex);
    return 0;
}
