// A device for tests, and memory for a program: arrays in, arrays out.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "compile/interpret.h"
#include "compile/program/interpret_program.h"
#include "run/cpu_device.h"
#include "world/real/native_compiler.h"

namespace tutti {

// What is not written in it shows as what it is not.
class TestProcessMemory final : public ProcessMemory {
 public:
  Result<std::unique_ptr<Mapping>> allocate(uint64_t bytes) override {
    return std::make_unique<Piece>(bytes);
  }
  void populate(MutableBytes) override {}
  std::optional<uint64_t> available_bytes() override { return available; }

  std::optional<uint64_t> available;

 private:
  class Piece final : public Mapping {
   public:
    explicit Piece(size_t bytes)
        : Mapping({static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64))), bytes}) {
      std::memset(bytes_.data(), 0xff, bytes);
    }
    ~Piece() override { ::operator delete(bytes_.data(), std::align_val_t(64)); }
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
  };
};

// The cpu, with the threads of a team that outlives it.
struct TestDevice {
  explicit TestDevice(Team& team) : cpu(team, *compiler, memory) {}

  std::unique_ptr<NativeCompiler> compiler = make_native_compiler();
  TestProcessMemory memory;
  CpuDevice cpu;
};

class ProgramMemory {
 public:
  ProgramMemory(const LoadedProgram& loaded, const std::vector<Array>& inputs)
      : program_(loaded.program()) {
    for (const Array& array : inputs) {
      inputs_.push_back(room(static_cast<size_t>(array.type.bytes())));
      write_array(array, inputs_.back());
    }
    for (const Output& output : program_.outputs) {
      std::byte* memory = nullptr;
      for (size_t i = 0; i < program_.inputs.size(); ++i)
        if (program_.inputs[i].role == InputRole::state && program_.inputs[i].name == output.name)
          memory = inputs_[i];
      const size_t index = outputs_.size();
      outputs_.push_back(memory != nullptr
                             ? memory
                             : room(static_cast<size_t>(program_.output_types[index].bytes())));
    }
    arena_ = room(loaded.arena_bytes());
  }
  ~ProgramMemory() {
    for (std::byte* piece : pieces_) ::operator delete(piece, std::align_val_t(64));
  }
  ProgramMemory(const ProgramMemory&) = delete;
  ProgramMemory& operator=(const ProgramMemory&) = delete;

  ProgramCall call() const { return {.inputs = inputs_, .outputs = outputs_, .arena = arena_}; }
  std::vector<Array> results() const {
    std::vector<Array> arrays;
    for (size_t i = 0; i < outputs_.size(); ++i)
      arrays.push_back(read_array(program_.output_types[i], outputs_[i]));
    return arrays;
  }

 private:
  // What is not written shows as what it is not.
  std::byte* room(size_t bytes) {
    auto* piece =
        static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1), std::align_val_t(64)));
    std::memset(piece, 0xff, bytes);
    pieces_.push_back(piece);
    return piece;
  }

  const Program& program_;
  std::vector<std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
  std::byte* arena_ = nullptr;
  std::vector<std::byte*> pieces_;
};

}  // namespace tutti
