// Memory for a program in tests: arrays in, arrays out.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "compile/interpret.h"
#include "compile/program/interpret_program.h"
#include "run/loaded_program.h"

namespace tutti {

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
