/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target on the files given as arguments. */
#include "tests/fuzz/fuzz.h"

#define MAX_BYTES ((size_t)1 << 20)

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        uint8_t *bytes = malloc(MAX_BYTES);
        if (!file || !bytes) {
            fprintf(stderr, "%s: %s cannot be read\n", argv[0], argv[i]);
            return 1;
        }
        size_t len = fread(bytes, 1, MAX_BYTES, file);
        fclose(file);
        uint8_t *exact = malloc(len ? len : 1); /* a read behind it is seen under ASan */
        if (!exact) return 1;
        for (size_t at = 0; at < len; at++) exact[at] = bytes[at];
        (void)LLVMFuzzerTestOneInput(exact, len);
        free(exact);
        free(bytes);
    }
    printf("%s: %d inputs\n", argv[0], argc - 1);
    return 0;
}
