/* Build tool: writes files into one C table, so that rankc needs no data files.
 *
 *     embed OUT.c TABLE ROOT FILE...
 *
 * Each FILE is known by its path behind the last ROOT in it ("templates/"), and a file without ROOT by its name.
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

static const char *known_as(const char *path, const char *root) {
    const char *name = NULL;
    for (const char *at = path; (at = strstr(at, root)); at++) name = at + strlen(root);
    if (name) return name;
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    FILE *out = fopen(argv[1], "wb");
    if (!out) {
        perror(argv[1]);
        return 1;
    }
    fprintf(out, "#include \"ir/base/embedded.h\"\n\nextern const struct embedded %s[];\n", argv[2]);
    fprintf(out, "const struct embedded %s[] = {\n", argv[2]);
    for (int i = 4; i < argc; i++) {
        fprintf(out, "    {\"%s\",\n", known_as(argv[i], argv[3]));
        write_text(out, argv[i]);
    }
    fputs("    {0, 0}};\n", out);
    return fclose(out) ? 1 : 0;
}
