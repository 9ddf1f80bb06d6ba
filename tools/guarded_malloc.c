/* An allocator to preload: each aligned allocation, such as a tensor's, ends at a page that cannot be used.
 *
 * Reading or writing beyond such memory is a segmentation fault. With GUARD=before in the environment, the memory begins
 * behind such a page instead. Freed memory cannot be used, and is never allocated again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096UL
#define ARENA_PAGES (1UL << 30)
#define LARGEST (1UL << 29)
#define LEAST_ALIGNMENT 16UL /* enough for torch, and leaves hardly any room between the memory and the page */

static char *arena;
static uint32_t *pages_at; /* of each allocation, by the number of its first page */
static unsigned long next_page = 1;
static int before;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*real_free)(void *);

static void *reserve(size_t size, int protection) {
  void *found = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? NULL : found;
}

__attribute__((constructor)) static void start(void) {
  const char *where = getenv("GUARD");
  before = where && !strcmp(where, "before");
  real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
  pages_at = reserve(ARENA_PAGES * sizeof *pages_at, PROT_READ | PROT_WRITE);
  arena = pages_at ? reserve(ARENA_PAGES * PAGE, PROT_NONE) : NULL;
}

int posix_memalign(void **result, size_t alignment, size_t size) {
  if (size > LARGEST || !arena) return ENOMEM;
  size_t pages = size ? (size + PAGE - 1) / PAGE : 1;
  pthread_mutex_lock(&lock);
  unsigned long first = next_page;
  int room = first + pages + 1 < ARENA_PAGES;
  if (room) next_page += pages + 1;
  pthread_mutex_unlock(&lock);
  char *block = arena + first * PAGE;
  if (!room || mprotect(block, pages * PAGE, PROT_READ | PROT_WRITE)) return ENOMEM;
  pages_at[first] = pages;
  size_t multiple = alignment > 64 ? alignment : LEAST_ALIGNMENT;
  *result = before ? block : block + ((pages * PAGE - size) & ~(multiple - 1));
  return 0;
}

void free(void *memory) {
  uintptr_t offset = (uintptr_t)memory - (uintptr_t)arena;
  if (!arena || (char *)memory < arena || offset >= ARENA_PAGES * PAGE) {
    if (real_free) real_free(memory);
    return;
  }
  unsigned long first = offset / PAGE; /* the memory begins in the first page, unless it is smaller than its alignment */
  while (first && !pages_at[first]) first--;
  mmap(arena + first * PAGE, pages_at[first] * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
}
