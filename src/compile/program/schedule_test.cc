#include "compile/program/schedule.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/program/lower.h"
#include "compile/program/memory_use.h"
#include "compile/program/tensor_view.h"

using namespace tutti;

namespace {

Program program_of(const std::string& graph) {
  auto program = lower_to_program(optimize(graph_of(graph)));
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  return *std::move(program);
}

// What runs beside what, a line for each instruction.
std::string schedule_of(const Program& program) {
  std::string text;
  for (const Instruction& each : program.instructions)
    text +=
        fmt::format("{} beside {} in room {}\n", kernel_name(each.kernel), each.beside, each.room);
  return text;
}

// Bytes by definition, one by one: memory and place.
std::set<std::pair<uint32_t, int64_t>> bytes_of(const std::vector<TensorRef>& refs) {
  std::set<std::pair<uint32_t, int64_t>> bytes;
  for (const TensorRef& ref : refs)
    for (int64_t i = 0; i < ref.type.elements(); ++i) {
      int64_t at = ref.offset;
      int64_t left = i;
      for (size_t d = ref.strides.size(); d-- > 0; left /= ref.type.dims[d].size)
        at += left % ref.type.dims[d].size * ref.strides[d];
      // The second buffer is where the next value of the first, a state, is put.
      bytes.emplace(ref.buffer == 1 ? 0 : ref.buffer, at);
    }
  return bytes;
}

bool touch(const std::vector<TensorRef>& a, const std::vector<TensorRef>& b) {
  const auto bytes = bytes_of(b);
  return std::ranges::any_of(bytes_of(a), [&](const auto& byte) { return bytes.contains(byte); });
}

bool disturb_by_definition(const Instruction& a, const Instruction& b) {
  return touch(a.results, b.results) || touch(a.results, b.operands) ||
         touch(a.operands, b.results) ||
         (a.kernel == Kernel::gemm && b.kernel == Kernel::gemm && a.room == b.room);
}

// Instructions on bytes of a state, its next value and an arena, here and there.
Program random_program(uint64_t seed) {
  Program program;
  program.inputs = {{.value = 0, .name = "w", .role = InputRole::state}};
  program.outputs = {{.value = 1, .name = "w"}};
  program.buffers = {{.place = BufferPlace::input, .bytes = 64},
                     {.place = BufferPlace::output, .bytes = 64},
                     {.place = BufferPlace::arena, .bytes = 256}};
  uint64_t drawn = 0;
  const auto draw = [&](uint32_t below) {
    return static_cast<int64_t>(random_bits(seed, 0, drawn++) % below);
  };
  const auto tensor = [&](bool written) {
    const int64_t buffer = draw(4) != 0 ? 2 : written ? 1 : draw(2);
    return TensorRef{.buffer = static_cast<uint32_t>(buffer),
                     .offset = draw(buffer == 2 ? 200 : 32),
                     .type = {DType::u8, {{"m", 1 + draw(3)}, {"n", 1 + draw(4)}}},
                     .strides = {4, 1}};
  };
  for (size_t i = 0; i < 40; ++i) {
    Instruction& made = program.instructions.emplace_back(
        Instruction{.kernel = draw(3) == 0 ? Kernel::gemm : Kernel::plain});
    for (int64_t n = draw(3); n > 0; --n) made.operands.push_back(tensor(false));
    made.results.push_back(tensor(true));
    if (i >= 30) made.section = Section::commit;
  }
  return program;
}

}  // namespace

TEST_CASE("gradients of inputs and of weights, and what needs one of them, run beside each other") {
  const Program program = program_of(R"(graph g(%x: f32[t=6, e=4], %w: f32[e=4, h=8],
      %d: f32[t=6, h=8]) {
    %dx = matmul(%d, %w) {over=["h"]}
    %dw = matmul(%x, %d) {over=["t"]}
    %s = sum(%dx) {dims=["e"]}
    return %dw as "dw", %s as "s"
  })");
  CHECK(schedule_of(program) ==
        "gemm beside 0 in room 0\n"
        "gemm beside 1 in room 1\n"
        "loops beside 1 in room 0\n");
  CHECK(program.text().starts_with(
      "program, arena of 128 bytes\n"
      "  gemm {accumulate=false}(d:f32[row=6, column=8], w:f32[row=8, column=4] by 1,8)"
      " -> arena+0:f32[row=6, column=4]\n"
      "  gemm {accumulate=false}(x:f32[row=4, column=6] by 1,4, d:f32[row=6, column=8])"
      " -> dw':f32[row=4, column=8] beside 1 in room 1\n"
      "  k0 (arena+0:f32[t=6, e=4]) -> s':f32[t=6] beside 1\n"));
}

TEST_CASE("a third product waits for the first, whose room it has") {
  const Program program = program_of(R"(graph g(%x: f32[m=2, k=3], %y: f32[k=3, n=2]) {
    %a = matmul(%x, %y) {over=["k"]}
    %b = matmul(%y, %x) {over=["k"]}
    %u = reshape(%y) : f32[m=2, n=3]
    %v = reshape(%y) : f32[n=3, o=2]
    %c = matmul(%u, %v) {over=["n"]}
    return %a as "a", %b as "b", %c as "c"
  })");
  CHECK(schedule_of(program) ==
        "gemm beside 0 in room 0\n"
        "gemm beside 1 in room 1\n"
        "gemm beside 1 in room 0\n");
}

TEST_CASE("sums that are added up in place are not read beside that") {
  // The norm's chunks are joined where they lie.
  const Program program = program_of(R"(graph g(%x: f32[n=9000], %y: f32[n=9000]) {
    %a = squared_norm(%x, %y)
    %b = squared_norm(%y)
    return %a as "a", %b as "b"
  })");
  CHECK(schedule_of(program) ==
        "square_chunks beside 0 in room 0\n"
        "square_chunks beside 1 in room 0\n"
        "join_chunks beside 0 in room 0\n"
        "square_chunks beside 0 in room 0\n"
        "join_chunks beside 0 in room 0\n");
}

TEST_CASE("products that wait for each other share a room") {
  const Program program = program_of(R"(graph g(%x: f32[m=4, k=4], %w: f32[k=4, n=4],
      %v: f32[n=4, o=4]) {
    %y = matmul(%x, %w) {over=["k"]}
    %z = matmul(%y, %v) {over=["n"]}
    return %z as "z"
  })");
  CHECK(schedule_of(program) ==
        "gemm beside 0 in room 0\n"
        "gemm beside 0 in room 0\n");
}

TEST_CASE("states are committed beside each other, when all before is done") {
  const std::string adamw = R"( {beta1=0.9, beta2=0.95, decay=0.1, epsilon=1e-08} )";
  const Program program = program_of(R"(graph g(%w: f32[n=4] state, %f: f32[n=4] state,
      %s: f32[n=4] state, %v: f32[m=2] state, %a: f32[m=2] state, %b: f32[m=2] state, %x: f32[n=4],
      %y: f32[m=2], %rate: f32[], %step: i64[]) {
    %one = constant() {value=1.0} : f32[]
    %loss = sum(%x) {dims=["n"]}
    %w1, %f1, %s1 = adamw(%w, %f, %s, %x, %one, %rate, %step))" +
                                     adamw + R"(
    %v1, %a1, %b1 = adamw(%v, %a, %b, %y, %one, %rate, %step))" +
                                     adamw + R"(
    return %loss as "loss", %w1 as "w", %f1 as "f", %s1 as "s", %v1 as "v", %a1 as "a", %b1 as "b"
  })");
  CAPTURE(program.text());
  const size_t commit = program.commit_begin();
  REQUIRE(program.instructions.size() == commit + 2);
  CHECK(program.instructions[commit].beside == 0);
  CHECK(program.instructions[commit + 1].beside == 1);
}

TEST_CASE("no two instructions that may run at once touch the same byte, of any program") {
  size_t together = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    Program program = random_program(seed);
    schedule_over_threads(program);
    CHECK(check_schedule(program).has_value());
    size_t done = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      Instruction& instruction = program.instructions[i];
      done = std::max(done, i - instruction.beside);
      together += i - done;
      for (size_t j = done; j < i; ++j)
        CHECK_FALSE(disturb_by_definition(instruction, program.instructions[j]));
    }
  }
  CHECK(together > 100);
}

TEST_CASE("a schedule that lets instructions disturb each other is refused") {
  size_t refused = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Program program = random_program(seed);
    schedule_over_threads(program);
    size_t done = 0;
    for (size_t i = 1; i < program.instructions.size(); ++i) {
      Instruction& instruction = program.instructions[i];
      const size_t now = i - instruction.beside;
      if (now > done) {  // it is the first to wait for the one before that
        ++instruction.beside;
        CAPTURE(i);
        CHECK_FALSE(check_schedule(program).has_value());
        --instruction.beside;
        ++refused;
      }
      done = now;
    }
    CHECK(check_schedule(program).has_value());
    program.instructions[0].beside = 1;
    CHECK_FALSE(check_schedule(program).has_value());
  }
  CHECK(refused > 100);
}
