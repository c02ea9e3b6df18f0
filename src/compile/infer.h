// The types of an operation's results, from its operands and attributes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compile/attribute.h"
#include "compile/op.h"
#include "compile/type.h"

namespace tutti {

struct Graph;

// `given` is the type of a result that does not follow from operands. Errors name both operands'
// types and say what to do; they do not name the user's line, which the caller knows.
Result<std::vector<Type>> infer(OpKind kind, std::span<const Type> operands,
                                const Attributes& attributes, const Graph* body, const Type* given);

}  // namespace tutti
