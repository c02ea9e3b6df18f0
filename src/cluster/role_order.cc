#include "cluster/role_order.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/assert.h"

namespace tutti {
namespace {

using RoleIndexes = std::vector<size_t>;

size_t role_count(const job::Spec& spec) { return static_cast<size_t>(spec.roles_size()); }

const job::Role& role_at(const job::Spec& spec, size_t role) {
  return spec.roles(static_cast<int>(role));
}

bool is_sidecar(const job::Spec& spec, size_t role) {
  return role_at(spec, role).kind() == job::Role::SIDECAR;
}

// Of a sidecar: the role it is beside.
size_t host_role(const job::Spec& spec, size_t sidecar) {
  const std::string& name = role_at(spec, sidecar).beside();
  const auto found = std::ranges::find(spec.roles(), name, &job::Role::name);
  TUTTI_ASSERT(found != spec.roles().end(), "check_job() saw that every sidecar has its role");
  return static_cast<size_t>(found - spec.roles().begin());
}

// What each role needs; names that no role has are left out.
std::vector<RoleIndexes> resolve_needs(const job::Spec& spec) {
  std::map<std::string_view, size_t> by_name;
  for (size_t role = 0; role < role_count(spec); ++role)
    by_name.emplace(role_at(spec, role).name(), role);
  std::vector<RoleIndexes> needs(role_count(spec));
  for (size_t role = 0; role < role_count(spec); ++role) {
    for (const std::string& name : role_at(spec, role).needs()) {
      const auto found = by_name.find(name);
      if (found != by_name.end()) needs[role].push_back(found->second);
    }
    std::ranges::sort(needs[role]);
    const auto repeated = std::ranges::unique(needs[role]);
    needs[role].erase(repeated.begin(), repeated.end());
  }
  return needs;
}

// Roles that need each other, or such a role: what is left when wave after wave of roles whose
// needs are met has been taken away. Sidecars follow others: they are left out.
RoleIndexes never_ready(const job::Spec& spec, const std::vector<RoleIndexes>& needs) {
  std::vector<bool> met(role_count(spec));
  RoleIndexes waiting;
  for (size_t role = 0; role < role_count(spec); ++role) {
    met[role] = is_sidecar(spec, role);
    if (!met[role]) waiting.push_back(role);
  }
  while (!waiting.empty()) {
    RoleIndexes wave;
    RoleIndexes later;
    for (const size_t role : waiting) {
      const bool ready = std::ranges::all_of(needs[role], [&](size_t need) { return met[need]; });
      (ready ? wave : later).push_back(role);
    }
    if (wave.empty()) break;
    for (const size_t role : wave) met[role] = true;
    waiting = std::move(later);
  }
  return waiting;
}

}  // namespace

uint32_t process_count(const job::Spec& spec, size_t role) {
  const size_t counted = is_sidecar(spec, role) ? host_role(spec, role) : role;
  return role_at(spec, counted).count();
}

RoleIndexes needs_cycle(const job::Spec& spec) {
  const std::vector<RoleIndexes> needs = resolve_needs(spec);
  const RoleIndexes never = never_ready(spec, needs);
  if (never.empty()) return {};
  // Each of them needs another of them: whoever follows the needs comes round.
  RoleIndexes trail;
  size_t role = never.front();
  while (std::ranges::find(trail, role) == trail.end()) {
    trail.push_back(role);
    role = *std::ranges::find_if(
        needs[role], [&](size_t need) { return std::ranges::binary_search(never, need); });
  }
  trail.erase(trail.begin(), std::ranges::find(trail, role));
  return trail;
}

RoleIndexes affected_roles(const job::Spec& spec, size_t failed_role) {
  TUTTI_ASSERT(failed_role < role_count(spec), "a role of this job failed");
  std::vector<bool> affected(role_count(spec));
  for (size_t role = 0; role < affected.size(); ++role) {
    affected[role] = role == failed_role || spec.strategy() == job::ONE_FOR_ALL ||
                     (spec.strategy() == job::REST_FOR_ONE && role > failed_role);
  }
  RoleIndexes roles;
  for (size_t role = 0; role < affected.size(); ++role) {
    if (affected[role] || (is_sidecar(spec, role) && affected[host_role(spec, role)]))
      roles.push_back(role);
  }
  return roles;
}

ProcessRange affected_processes(job::Strategy strategy, uint32_t failed, uint32_t count) {
  TUTTI_ASSERT(failed < count, "a process of this role failed");
  if (strategy == job::ONE_FOR_ALL) return {0, count};
  if (strategy == job::ONE_FOR_ONE) return {failed, failed + 1};
  return {failed, count};
}

}  // namespace tutti
