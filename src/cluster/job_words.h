// The words of job files for what job.proto numbers: each at the place of its number.
#pragma once

#include <iterator>
#include <string_view>

#include "cluster/job.pb.h"

namespace tutti {

constexpr std::string_view kKindWords[] = {"gang", "service", "task", "sidecar"};
constexpr std::string_view kStrategyWords[] = {"one_for_all", "one_for_one", "rest_for_one"};
constexpr std::string_view kErrorWords[] = {
    "finished", "user_error", "killed", "out_of_memory", "host_lost", "hang", "not_started",
};
constexpr std::string_view kScopeWords[] = {"process", "host", "role", "job"};

static_assert(std::size(kScopeWords) == job::Scope_ARRAYSIZE);
static_assert(std::size(kKindWords) == job::Role::Kind_ARRAYSIZE);
static_assert(std::size(kStrategyWords) == job::Strategy_ARRAYSIZE);
static_assert(std::size(kErrorWords) == job::ErrorClass_ARRAYSIZE);

}  // namespace tutti
