// How an Error becomes the exception tutti.Error, with the same words.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

[[noreturn]] inline void raise(const tutti::Error& error) {
  namespace nb = nanobind;
  const nb::object type = nb::module_::import_("tutti._error").attr("Error");
  const std::string text = error.text();
  const std::string_view code = tutti::code_name(error.code());
  const nb::object instance = type(text.c_str(), nb::str(code.data(), code.size()));
  PyErr_SetObject(type.ptr(), instance.ptr());
  throw nb::python_error();
}

template <class T>
T value_or_raise(tutti::Result<T> result) {
  if (!result) raise(result.error());
  return *std::move(result);
}
