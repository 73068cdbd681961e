/* Build tool: writes the files of templates/ into one C table, so that rankc needs no data files.
 *
 *     embed OUT.c ROOT FILE...      each FILE is known by its path behind ROOT, "templates/"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_text(FILE *out, const char *path) {
    FILE *in = fopen(path, "rb");
    if (!in) {
        perror(path);
        exit(1);
    }
    fputs("     \"", out);
    for (int c; (c = getc(in)) != EOF;) {
        if (c == '\n')
            fputs("\\n\"\n     \"", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else
            putc(c, out);
    }
    fputs("\"},\n", out);
    fclose(in);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    FILE *out = fopen(argv[1], "wb");
    if (!out) {
        perror(argv[1]);
        return 1;
    }
    fputs("#include \"codegen/embedded.h\"\n\nconst struct embedded embedded[] = {\n", out);
    for (int i = 3; i < argc; i++) {
        const char *root = strstr(argv[i], argv[2]), *name = root ? root + strlen(argv[2]) : argv[i];
        fprintf(out, "    {\"%s\",\n", name);
        write_text(out, argv[i]);
    }
    fputs("    {0, 0}};\n", out);
    return fclose(out) ? 1 : 0;
}
