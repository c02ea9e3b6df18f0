// A rank in C: works in an epoch until it is over, and then says who died.
//
//   cc -std=c11 -Iinclude examples/control_page.c -o control_page
#include "tutti/control_page.h"

#include <stdio.h>

int main(void) {
  tutti_control_page* page = tutti_control_map();
  if (page == NULL) {
    perror("control page");
    return 1;
  }
  const uint64_t epoch = tutti_control_epoch(page);
  printf("rank %u works in epoch %llu\n", page->rank, (unsigned long long)epoch);
  fflush(stdout);
  for (uint64_t step = 1;; ++step) {
    const uint32_t seen = tutti_control_word(page);
    if (tutti_control_aborted(page, epoch)) break;
    tutti_control_set_step(page, step);
    tutti_control_progress(page);
    tutti_control_wait(page, seen, 10 * 1000 * 1000);  // stands for a step of work
  }
  tutti_control_dead lost;
  tutti_control_read_lost(page, epoch, &lost);
  for (uint32_t i = 0; i < lost.count; ++i)
    printf("lost: %u-%u\n", tutti_control_first(lost.ranges[i]),
           tutti_control_last(lost.ranges[i]));
  tutti_control_unmap(page);
  return 0;
}
