// Multiplies matrices with as many threads as asked for, ours or OpenBLAS's, or only multiplies and
// adds numbers in registers, which is the most that can be had:
//   bench_gemm ours|panels|avx2|avx512|openblas|peak THREADS
// where the names of kernels are ours, for that kind of processor; with panels B is packed before.
// Each line "M N K A_TRANSPOSED B_TRANSPOSED MILLISECONDS" of its input is answered with GFLOP/s,
// the median over the calls that fit into that time.
#include "kernels/gemm.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/gemm_panel.h"
#include "measure.h"

namespace {

struct Shape {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  double milliseconds;

  double flop() const { return 2.0 * static_cast<double>(m * n * k); }
};

// Enough sets of operands that none is still in the caches when its turn comes again, if that is
// within reason; the peers do the same.
constexpr int64_t kBytesOfAllSets = 64 << 20;
constexpr int64_t kMostSets = 8;

// Memory in huge pages, as the executor has it.
class Pages {
 public:
  void hold(size_t bytes) {
    if (bytes <= bytes_) return;
    bytes_ = (bytes + kHuge - 1) / kHuge * kHuge;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kHuge, bytes_)));
    madvise(data_.get(), bytes_, MADV_HUGEPAGE);
  }
  std::byte* data() const { return data_.get(); }

 private:
  static constexpr size_t kHuge = 2 << 20;
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

// Begins with a line of the cache, as those of torch do.
template <typename T>
struct FromLine {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
  void deallocate(T* data, size_t /*count*/) { ::operator delete(data, kLine); }
  bool operator==(const FromLine&) const = default;
};
using Floats = std::vector<float, FromLine<float>>;

struct Operands {
  Floats a, b, c;
  Pages panel;
  std::optional<bool> packed;  // of which B: transposed or not

  explicit Operands(const Shape& shape)
      : a(shape.m * shape.k), b(shape.k * shape.n), c(shape.m * shape.n) {
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 13) - 6;
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 11) - 5;
  }
};

// Threads on processors of their own that begin together; between calls they spin, as those of the
// peers do for a while.
class Team {
 public:
  explicit Team(int threads) : threads_(threads) {
    for (int i = 1; i < threads; ++i) helpers_.emplace_back([this, i] { help(i); });
    stay_on(0);
  }
  ~Team() {
    work_ = nullptr;
    begun_.fetch_add(1);
    begun_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }
  void run(const std::function<void(int)>& work) {
    work_ = &work;
    done_.store(1);
    begun_.fetch_add(1);
    begun_.notify_all();
    work(0);
    while (done_.load() != threads_) __builtin_ia32_pause();
  }

 private:
  static constexpr int kSpins = 20'000;  // about a millisecond

  static void stay_on(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  void help(int thread) {
    stay_on(thread);
    for (uint64_t seen = 0;; ++seen) {
      for (int i = 0; i < kSpins && begun_.load() == seen; ++i) __builtin_ia32_pause();
      begun_.wait(seen);
      if (work_ == nullptr) return;
      (*work_)(thread);
      done_.fetch_add(1);
    }
  }

  int threads_;
  std::vector<std::thread> helpers_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<uint64_t> begun_ = 0;
  std::atomic<int> done_ = 0;
};

class Ours {
 public:
  explicit Ours(int threads, bool with_panels = false)
      : threads_(threads), with_panels_(with_panels), team_(threads), workspaces_(threads) {}

  void multiply(const Shape& s, Operands& o) {
    tutti::Gemm product{.m = s.m,
                        .n = s.n,
                        .k = s.k,
                        .a = {o.a.data(), s.a_transposed ? 1 : s.k, s.a_transposed ? s.m : 1},
                        .b = {o.b.data(), s.b_transposed ? 1 : s.n, s.b_transposed ? s.k : 1},
                        .c = o.c.data(),
                        .c_row_stride = s.n,
                        .threads = threads_};
    if (with_panels_) product.panel = panel_of(product, s, o);
    shared_.hold(tutti::gemm_shared_bytes(product));
    for (Pages& workspace : workspaces_) workspace.hold(tutti::gemm_workspace_bytes(product));
    for (int phase = 0; phase < tutti::gemm_phases(product); ++phase) {
      turns_.begin();
      team_.run([&](int thread) {
        tutti::gemm(product, {phase, thread, &turns_, shared_.data(), workspaces_[thread].data()});
      });
    }
  }

 private:
  static const float* panel_of(const tutti::Gemm& product, const Shape& s, Operands& o) {
    o.panel.hold(tutti::gemm_panel_bytes(s.n, s.k));
    auto* packed = reinterpret_cast<float*>(o.panel.data());
    if (o.packed != s.b_transposed)
      tutti::gemm_pack_panel({product.b, s.n, s.k, packed}, {0, s.k, 0, s.n});
    o.packed = s.b_transposed;
    return packed;
  }

  int threads_;
  bool with_panels_;
  Team team_;
  tutti::Turns turns_;
  Pages shared_;
  std::vector<Pages> workspaces_;
};

class OursWithPanels : public Ours {
 public:
  explicit OursWithPanels(int threads) : Ours(threads, true) {}
};

// By its C interface, loaded when asked for: nothing of ours links it.
class OpenBlas {
 public:
  explicit OpenBlas(int threads) {
    void* library = dlopen("libopenblas.so.0", RTLD_NOW);
    if (library == nullptr) {
      fmt::print(stderr, "bench_gemm: {}; run: apt-get install libopenblas0-pthread\n", dlerror());
      std::exit(1);
    }
    sgemm_ = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
    reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"))(threads);
  }
  void multiply(const Shape& s, Operands& o) {
    constexpr int kRowMajor = 101;
    constexpr int kPlain = 111;
    constexpr int kTransposed = 112;
    const auto [m, n, k] = std::tuple(int(s.m), int(s.n), int(s.k));
    sgemm_(kRowMajor, s.a_transposed ? kTransposed : kPlain, s.b_transposed ? kTransposed : kPlain,
           m, n, k, 1, o.a.data(), s.a_transposed ? m : k, o.b.data(), s.b_transposed ? k : n, 0,
           o.c.data(), n);
  }

 private:
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                         float, float*, int);
  Sgemm sgemm_;
};

// Chains of multiply-adds in registers, twelve of the widest vectors there are.
template <typename Vector>
__attribute__((always_inline)) inline float chains(int64_t rounds) {
  Vector sums[12];
  const Vector factor = Vector{} + 0.999F;
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) sums[i] = factor * static_cast<float>(i);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) {
      sums[i] = sums[i] * factor + factor;
      __asm__("" : "+v"(sums[i]));  // twelve chains, not one that is known twelve times
    }
  }
  Vector all = {};
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) all += sums[i];
  return all[0];
}

#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
typedef float Eight __attribute__((vector_size(32)));
typedef float Sixteen __attribute__((vector_size(64)));
__attribute__((target("avx2,fma"))) float chains_of_8(int64_t rounds) {
  return chains<Eight>(rounds);
}
__attribute__((target("avx512f"))) float chains_of_16(int64_t rounds) {
  return chains<Sixteen>(rounds);
}
#pragma GCC pop_options

class Peak {
 public:
  explicit Peak(int threads) : threads_(threads), team_(threads) {}

  void multiply(const Shape& s, Operands& /*operands*/) {
    const bool wide = __builtin_cpu_supports("avx512f");
    const int64_t flop_a_round = 2 * 12 * (wide ? 16 : 8);
    const auto rounds = static_cast<int64_t>(s.flop()) / flop_a_round / threads_;
    team_.run([&](int /*thread*/) {
      volatile float sum = wide ? chains_of_16(rounds) : chains_of_8(rounds);
      (void)sum;
    });
  }

 private:
  int threads_;
  Team team_;
};

template <typename Side>
double gflops(Side& side, int threads, const Shape& shape, std::vector<Operands>& sets) {
  const auto clock_ns = threads == 1 ? cpu_ns : now_ns;
  for (Operands& set : sets) side.multiply(shape, set);
  std::vector<double> seconds;
  const uint64_t end = now_ns() + static_cast<uint64_t>(shape.milliseconds * 1e6);
  do {
    const uint64_t start = clock_ns();
    side.multiply(shape, sets[seconds.size() % sets.size()]);
    seconds.push_back(static_cast<double>(clock_ns() - start) / 1e9);
  } while (now_ns() < end);
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return shape.flop() / seconds[seconds.size() / 2] / 1e9;
}

template <typename Side>
void serve(int threads) {
  Side side(threads);
  Shape last{};
  std::vector<Operands> sets;
  Shape now;
  while (std::cin >> now.m >> now.n >> now.k >> now.a_transposed >> now.b_transposed >>
         now.milliseconds) {
    if (now.m != last.m || now.n != last.n || now.k != last.k) {
      sets.clear();
      const int64_t bytes = 4 * (now.m * now.k + now.k * now.n + now.m * now.n);
      const int64_t count = std::clamp<int64_t>(kBytesOfAllSets / bytes, 1, kMostSets);
      for (int64_t i = 0; i < count; ++i) sets.emplace_back(now);
      last = now;
    }
    fmt::print("{}\n", gflops(side, threads, now, sets));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string side = argv[1];
  const int threads = std::atoi(argv[2]);
  for (const char* kernel : tutti::gemm_kernels()) {
    if (side != kernel) continue;
    tutti::use_gemm_kernel(kernel);
    serve<Ours>(threads);
  }
  if (side == "ours") serve<Ours>(threads);
  if (side == "panels") serve<OursWithPanels>(threads);
  if (side == "openblas") serve<OpenBlas>(threads);
  if (side == "peak") serve<Peak>(threads);
}
