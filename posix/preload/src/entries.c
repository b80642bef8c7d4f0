/* Where the linker's section `engram_real` begins and ends. The linker makes both symbols; said to
   be hidden here, they are no other library's concern, whichever linker it is. */

#define HIDDEN __attribute__((visibility("hidden")))

extern const void *const __start_engram_real[] HIDDEN;
extern const void *const __stop_engram_real[] HIDDEN;

HIDDEN const void *const *engram_entries(void) {
    return __start_engram_real;
}

HIDDEN const void *const *engram_entries_end(void) {
    return __stop_engram_real;
}
