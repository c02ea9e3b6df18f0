// A rank's control page: what its keeper and agent tell it, and what it tells them, in memory that
// they share. docs/control-page.md is the manual.
//
// One file that any program may copy: C11 or C++17 on 64-bit, little-endian Linux, with gcc or
// clang; it depends on nothing else. Every function is safe to call from any thread.
//
//   tutti_control_page *page = tutti_control_map();        // NULL outside of a job
//   uint64_t epoch = tutti_control_epoch(page);
//   while (working) {
//     if (tutti_control_aborted(page, epoch)) leave();     // one load: look as often as you like
//     tutti_control_progress(page);
//   }
#ifndef TUTTI_CONTROL_PAGE_H
#define TUTTI_CONTROL_PAGE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the control page is little-endian"
#endif

#ifdef __cplusplus
extern "C" {
#define TUTTI_CONTROL_ASSERT static_assert
#else
#define TUTTI_CONTROL_ASSERT _Static_assert
long syscall(long number, ...);  // not declared by unistd.h under -std=c11
#endif

#define TUTTI_CONTROL_MAGIC 0x4C544354U  // "TCTL"
#define TUTTI_CONTROL_LAYOUT 1U          // later layouts only add to it
#define TUTTI_CONTROL_BYTES 1024         // of a page, and from one page of an arena to the next
#define TUTTI_CONTROL_RANGES 112U        // of dead ranks; when there are more, some are left out
#define TUTTI_CONTROL_LIFELINE_BROKEN 0x40000000U     // FUTEX_OWNER_DIED
#define TUTTI_CONTROL_LIFELINE_ENDED 0x40000001U      // by the keeper: its process has ended
#define TUTTI_CONTROL_FD_VARIABLE "TUTTI_CONTROL_FD"  // the arena of all pages of a host
#define TUTTI_CONTROL_OFFSET_VARIABLE "TUTTI_CONTROL_OFFSET"  // of this rank's page in it

typedef struct tutti_control_page {
  // Written once, before the rank knows of its page.
  uint32_t magic;
  uint32_t layout;
  uint32_t rank;
  uint32_t reserved_0;

  // Written by the keeper and the agent.
  uint64_t epoch;           // the present one: term << 32 | counter, never 0
  uint64_t aborted;         // the newest epoch that is over; 0 when none is
  uint32_t word;            // changes whenever the epoch, `aborted` or the set of the dead does
  uint32_t sequence;        // odd while the set of the dead is being written
  uint32_t dead_count;      // of `dead`
  uint32_t dead_truncated;  // not 0: there are more dead than the set says
  uint32_t returned_count;  // of those who were lost and are back, at the end of `dead`
  uint32_t reserved_1;
  uint64_t reserved_3;

  // Written by the rank.
  uint64_t progress;  // grows whenever the rank gets somewhere
  uint64_t step;
  uint32_t phase;  // whatever the program means by it
  int32_t pid;
  uint64_t record_offset;  // of its flight record, in the arena of TUTTI_HEAP_FD
  uint32_t record_bytes;   // 0: it keeps none
  uint32_t record_brief;   // so many of them, from the first, are enough for a short answer
  // The number of a thread that lives as long as the rank, in that thread's robust list: when it
  // ends, the kernel sets TUTTI_CONTROL_LIFELINE_BROKEN and wakes the keeper. 0: nobody holds it.
  uint32_t lifeline;
  uint32_t reserved_4;
  uint64_t reserved_2[2];

  // Written by the keeper and the agent: first | last << 32, ascending. From the end backwards, two
  // words for each range that was lost and is back: the range, and before it the epoch since which.
  uint64_t dead[TUTTI_CONTROL_RANGES];
} tutti_control_page;

TUTTI_CONTROL_ASSERT(sizeof(tutti_control_page) == TUTTI_CONTROL_BYTES, "1,024 bytes");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, magic) == 0, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, layout) == 4, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, rank) == 8, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, epoch) == 16, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, aborted) == 24, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, word) == 32, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, sequence) == 36, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, dead_count) == 40, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, dead_truncated) == 44, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, returned_count) == 48, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, progress) == 64, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, step) == 72, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, phase) == 80, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, pid) == 84, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, record_offset) == 88, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, record_bytes) == 96, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, record_brief) == 100, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, lifeline) == 104, "layout");
TUTTI_CONTROL_ASSERT(offsetof(tutti_control_page, dead) == 128, "layout");

// A copy of the set of the dead, or of the lost.
typedef struct tutti_control_dead {
  uint32_t count;
  uint32_t truncated;
  uint64_t ranges[TUTTI_CONTROL_RANGES];
} tutti_control_dead;

static inline int tutti_control_number(const char* variable, uint64_t* number) {
  const char* text = getenv(variable);
  char* end = NULL;
  if (text == NULL || *text < '0' || *text > '9') return 0;
  *number = strtoull(text, &end, 10);
  return *end == '\0';
}

// This process's page, or NULL: errno is ENOENT outside of a job, EPROTO when what is there is no
// page. The mapping stays until tutti_control_unmap().
static inline tutti_control_page* tutti_control_map(void) {
  uint64_t fd = 0;
  uint64_t offset = 0;
  if (!tutti_control_number(TUTTI_CONTROL_FD_VARIABLE, &fd) ||
      !tutti_control_number(TUTTI_CONTROL_OFFSET_VARIABLE, &offset)) {
    errno = ENOENT;
    return NULL;
  }
  const uint64_t skipped = offset % (uint64_t)sysconf(_SC_PAGESIZE);
  const size_t bytes = (size_t)skipped + TUTTI_CONTROL_BYTES;
  void* pages =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, (off_t)(offset - skipped));
  if (pages == MAP_FAILED) return NULL;
  tutti_control_page* page = (tutti_control_page*)((char*)pages + skipped);
  if (__atomic_load_n(&page->magic, __ATOMIC_ACQUIRE) != TUTTI_CONTROL_MAGIC) {
    munmap(pages, bytes);
    errno = EPROTO;
    return NULL;
  }
  __atomic_store_n(&page->pid, (int32_t)getpid(), __ATOMIC_RELAXED);
  return page;
}

static inline void tutti_control_unmap(tutti_control_page* page) {
  const uintptr_t skipped = (uintptr_t)page % (uintptr_t)sysconf(_SC_PAGESIZE);
  munmap((char*)page - skipped, (size_t)skipped + TUTTI_CONTROL_BYTES);
}

// What a rank is told. ------------------------------------------------------------------------

static inline uint64_t tutti_control_epoch(const tutti_control_page* page) {
  return __atomic_load_n(&page->epoch, __ATOMIC_ACQUIRE);
}

// Whether this epoch is over: whoever works or waits in it stops and asks for the next.
static inline int tutti_control_aborted(const tutti_control_page* page, uint64_t epoch) {
  return __atomic_load_n(&page->aborted, __ATOMIC_ACQUIRE) >= epoch;
}

// Looks that a reader takes at a set that is being written: some milliseconds.
#define TUTTI_CONTROL_LOOKS 100000

static inline void tutti_control_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Those who were lost to whoever is in this epoch, at one moment, in no order: the dead, and those
// who died and are back in a later epoch. A writer that dies within its write leaves a set that
// says too little until the next writer marks it as truncated: after enough looks it is read as it
// is.
static inline void tutti_control_read_lost(const tutti_control_page* page, uint64_t epoch,
                                           tutti_control_dead* lost) {
  lost->count = 0;
  lost->truncated = 1;
  for (int look = 0; look <= TUTTI_CONTROL_LOOKS; ++look) {
    const uint32_t before = __atomic_load_n(&page->sequence, __ATOMIC_ACQUIRE);
    if ((before & 1) != 0 && look < TUTTI_CONTROL_LOOKS) {
      tutti_control_pause();
      continue;
    }
    uint32_t returned = __atomic_load_n(&page->returned_count, __ATOMIC_ACQUIRE);
    lost->count = __atomic_load_n(&page->dead_count, __ATOMIC_ACQUIRE);
    if (lost->count > TUTTI_CONTROL_RANGES) lost->count = TUTTI_CONTROL_RANGES;
    if (returned > (TUTTI_CONTROL_RANGES - lost->count) / 2)
      returned = (TUTTI_CONTROL_RANGES - lost->count) / 2;
    lost->truncated = __atomic_load_n(&page->dead_truncated, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < lost->count; ++i)
      lost->ranges[i] = __atomic_load_n(&page->dead[i], __ATOMIC_ACQUIRE);
    for (uint32_t i = 1; i <= returned; ++i) {
      const uint64_t* entry = &page->dead[TUTTI_CONTROL_RANGES - 2 * i];
      if (__atomic_load_n(&entry[0], __ATOMIC_ACQUIRE) > epoch)
        lost->ranges[lost->count++] = __atomic_load_n(&entry[1], __ATOMIC_ACQUIRE);
    }
    if (__atomic_load_n(&page->sequence, __ATOMIC_ACQUIRE) == before) return;
  }
}

// The set of the dead at one moment, ascending.
static inline void tutti_control_read_dead(const tutti_control_page* page,
                                           tutti_control_dead* dead) {
  tutti_control_read_lost(page, UINT64_MAX, dead);
}

static inline uint32_t tutti_control_first(uint64_t range) { return (uint32_t)range; }
static inline uint32_t tutti_control_last(uint64_t range) { return (uint32_t)(range >> 32); }

static inline int tutti_control_is_dead(const tutti_control_dead* dead, uint32_t rank) {
  for (uint32_t i = 0; i < dead->count; ++i)
    if (tutti_control_first(dead->ranges[i]) <= rank && rank <= tutti_control_last(dead->ranges[i]))
      return 1;
  return 0;
}

static inline uint32_t tutti_control_word(const tutti_control_page* page) {
  return __atomic_load_n(&page->word, __ATOMIC_ACQUIRE);
}

// Sleeps until the word is no longer the one that was seen (0), or for as long as given (ETIMEDOUT;
// a negative time is for ever). May also return 0 for no reason: look again.
static inline int tutti_control_wait(const tutti_control_page* page, uint32_t seen,
                                     int64_t timeout_ns) {
  const int futex_wait = 0;  // FUTEX_WAIT, shared between processes
  struct timespec timeout;
  timeout.tv_sec = (time_t)(timeout_ns / 1000000000);
  timeout.tv_nsec = (long)(timeout_ns % 1000000000);
  if (syscall(SYS_futex, &page->word, futex_wait, seen, timeout_ns < 0 ? NULL : &timeout, NULL,
              0) == 0)
    return 0;
  return errno == ETIMEDOUT ? ETIMEDOUT : 0;
}

// What a rank tells. --------------------------------------------------------------------------

// It got somewhere. A rank that says nothing for long may be taken for hung.
static inline void tutti_control_progress(tutti_control_page* page) {
  __atomic_fetch_add(&page->progress, 1, __ATOMIC_RELAXED);
}

static inline void tutti_control_set_step(tutti_control_page* page, uint64_t step) {
  __atomic_store_n(&page->step, step, __ATOMIC_RELAXED);
}

static inline void tutti_control_set_phase(tutti_control_page* page, uint32_t phase) {
  __atomic_store_n(&page->phase, phase, __ATOMIC_RELAXED);
}

// Where in the heap it keeps a record of what it does, for `tutti stuck`.
static inline void tutti_control_set_record(tutti_control_page* page, uint64_t offset,
                                            uint32_t bytes, uint32_t brief) {
  __atomic_store_n(&page->record_bytes, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&page->record_offset, offset, __ATOMIC_RELEASE);
  __atomic_store_n(&page->record_brief, brief, __ATOMIC_RELEASE);
  __atomic_store_n(&page->record_bytes, bytes, __ATOMIC_RELEASE);
}

#undef TUTTI_CONTROL_ASSERT
#ifdef __cplusplus
}  // extern "C"
#endif
#endif  // TUTTI_CONTROL_PAGE_H
