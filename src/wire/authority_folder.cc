#include "wire/authority_folder.h"

#include <optional>
#include <vector>

#include "base/log.h"

namespace tutti::wire {

namespace {

constexpr unsigned kOthersMayRead = 0077;

int64_t now_unix_s(World& world) { return world.clock().unix_ns() / 1'000'000'000; }

std::string temporary_name(World& world, const std::string& path) {
  return fmt::format("{}.new-{:016x}", path, world.random().next());
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// With all that leads to it, and so that a crash takes none of them away.
Task<Result<void>> make_folder(World& world, std::string folder) {
  std::vector<std::string> missing;
  for (std::string at = folder; missing.empty() || at != missing.back(); at = folder_of(at)) {
    auto info = co_await world.disk().info(at);
    if (info) break;
    if (info.error().code() != Code::not_found) co_return fail(info.error());
    missing.push_back(at);
  }
  auto made = co_await world.disk().make_directories(folder);
  if (!made) co_return fail(made.error());
  for (const std::string& name : missing) {
    const std::string parent = folder_of(name);
    auto synced = co_await world.disk().sync_directory(parent);
    if (!synced) co_return fail(synced.error());
  }
  co_return {};
}

Task<Result<void>> write_new(World& world, std::string path, std::string text, bool secret) {
  const OpenOptions options{.write = true, .create = true, .exclusive = true, .secret = secret};
  auto file = co_await world.disk().open(path, options);
  if (!file) co_return fail(file.error());
  const Bytes bytes = as_bytes(text);
  auto written = co_await (*file)->write(0, bytes);
  if (!written) co_return fail(written.error());
  auto synced = co_await (*file)->sync();
  co_return synced;
}

Task<Result<std::string>> read_secret(World& world, std::string path) {
  auto info = co_await world.disk().info(path);
  if (!info) co_return fail(info.error());
  if ((info->permissions & kOthersMayRead) != 0)
    co_return fail(
        Code::denied,
        "{} holds a private key and others may read it (mode {:04o}); if nobody has, run: "
        "chmod 600 {}",
        path, info->permissions, path);
  auto text = co_await read_file(world.disk(), path, kMaxCertificateFileBytes);
  co_return text;
}

Task<void> remove_all(World& world, std::string folder) {
  const Shield shield;  // leave nothing behind, even when cancelled
  const std::string key = folder + "/key.pem";
  const std::string certificate = folder + "/certificate.pem";
  auto first = co_await world.disk().remove(key);
  auto second = co_await world.disk().remove(certificate);
  auto third = co_await world.disk().remove(folder);
  // What cannot be removed is harmless; the error that brought us here is the one that matters.
  static_cast<void>(first);
  static_cast<void>(second);
  static_cast<void>(third);
}

Task<Result<Authority>> load_authority(World& world, std::string folder) {
  const std::string key_path = folder + "/key.pem";
  const std::string certificate_path = folder + "/certificate.pem";
  auto key = co_await read_secret(world, key_path);
  if (!key) co_return fail(key.error());
  auto certificate = co_await read_file(world.disk(), certificate_path, kMaxCertificateFileBytes);
  if (!certificate) co_return fail(certificate.error());
  auto authority = Authority::from_pem(*certificate, *key);
  if (!authority)
    co_return fail(authority.error().context(fmt::format("loading the authority in {}", folder)));
  co_return authority;
}

Task<Result<void>> write_authority(World& world, std::string folder, Authority authority) {
  auto made = co_await make_folder(world, folder);
  if (!made) co_return fail(made.error());
  const std::string key_path = folder + "/key.pem";
  const std::string certificate_path = folder + "/certificate.pem";
  const std::string key = authority.key_pem();
  const std::string certificate = authority.certificate_pem();
  auto key_written = co_await write_new(world, key_path, key, true);
  if (!key_written) co_return fail(key_written.error());
  auto certificate_written = co_await write_new(world, certificate_path, certificate, false);
  if (!certificate_written) co_return fail(certificate_written.error());
  auto synced = co_await world.disk().sync_directory(folder);
  co_return synced;
}

// Makes both files in a folder of another name and renames it into place: a folder with files in it
// cannot be replaced by that, so the first of several wins.
Task<Result<void>> make_authority(World& world, std::string folder, std::string cluster) {
  if (cluster.empty()) cluster = fmt::format("cluster-{:08x}", world.random().below(1ULL << 32));
  auto authority = Authority::create(cluster, now_unix_s(world));
  if (!authority) co_return fail(authority.error());
  const std::string temporary = temporary_name(world, folder);
  auto done = co_await write_authority(world, temporary, *authority);
  if (done) {
    auto renamed = co_await world.disk().rename(temporary, folder);
    done = std::move(renamed);
  }
  if (!done) {
    co_await remove_all(world, temporary);
    if (done.error().code() == Code::exists) co_return {};
    co_return fail(done.error().context(fmt::format("making the authority in {}", folder)));
  }
  const std::string parent = folder_of(folder);
  auto synced = co_await world.disk().sync_directory(parent);
  co_return synced;
}

Result<void> check_holder(const Certificate& found, const std::string& path, std::string cluster,
                          const IssueOptions& options) {
  if (cluster.empty()) cluster = found.identity().cluster;
  const Identity wanted{std::move(cluster), options.role, options.name};
  if (found.identity() == wanted) return {};
  return fail(Code::invalid,
              "{} is the certificate of {}, not of {}; move it away, or use another folder", path,
              identity_text(found.identity()), identity_text(wanted));
}

// The fingerprint of the authority in the folder; nothing when there is none.
Task<Result<std::optional<std::string>>> authority_in(World& world, std::string folder) {
  const std::string path = folder + "/authority/certificate.pem";
  auto pem = co_await read_file(world.disk(), path, kMaxCertificateFileBytes);
  if (!pem && pem.error().code() == Code::not_found) co_return std::nullopt;
  if (!pem) co_return fail(pem.error());
  auto fingerprint = key_fingerprint(*pem);
  if (!fingerprint) co_return fail(fingerprint.error().context("reading " + path));
  co_return std::optional<std::string>(*fingerprint);
}

}  // namespace

Task<Result<Authority>> open_authority(World& world, std::string folder, std::string cluster) {
  const std::string place = folder + "/authority";
  auto authority = co_await load_authority(world, place);
  if (!authority && authority.error().code() == Code::not_found) {
    auto made = co_await make_authority(world, place, cluster);
    if (!made) co_return fail(made.error());
    auto loaded = co_await load_authority(world, place);
    authority = std::move(loaded);
  }
  if (!authority) co_return fail(authority.error());
  if (!cluster.empty() && authority->cluster() != cluster)
    co_return fail(Code::invalid,
                   "the authority in {} is of cluster {}, not {}; use that name or another folder",
                   place, authority->cluster(), cluster);
  co_return authority;
}

std::string certificate_path(const std::string& folder, Role role, const std::string& name) {
  return fmt::format("{}/{}-{}.pem", folder, role_name(role), name);
}

Task<Result<Certificate>> load_certificate(World& world, std::string path) {
  auto pem = co_await read_secret(world, path);
  if (!pem) co_return fail(pem.error());
  auto certificate = Certificate::from_pem(*pem);
  if (!certificate) co_return fail(certificate.error().context(fmt::format("reading {}", path)));
  co_return certificate;
}

Task<Result<void>> store_certificate(World& world, std::string path, Certificate certificate) {
  const std::string temporary = temporary_name(world, path);
  const std::string pem = certificate.pem();
  auto done = co_await write_new(world, temporary, pem, true);
  if (done) {
    auto renamed = co_await world.disk().rename(temporary, path);
    done = std::move(renamed);
  }
  if (!done) {
    const Shield shield;
    auto removed = co_await world.disk().remove(temporary);
    static_cast<void>(removed);  // the first error is the one that matters
    co_return fail(done.error().context(fmt::format("writing {}", path)));
  }
  const std::string folder = folder_of(path);
  auto synced = co_await world.disk().sync_directory(folder);
  co_return synced;
}

namespace {

Task<Result<Certificate>> issue_anew(World& world, std::string folder, std::string cluster,
                                     IssueOptions options) {
  auto authority = co_await open_authority(world, folder, cluster);
  if (!authority) co_return fail(authority.error());
  auto issued = authority->issue(options, now_unix_s(world));
  if (!issued) co_return fail(issued.error());
  const std::string path = certificate_path(folder, options.role, options.name);
  auto stored = co_await store_certificate(world, path, *issued);
  if (!stored) co_return fail(stored.error());
  co_return *issued;
}

}  // namespace

Task<Result<Certificate>> obtain_certificate(World& world, std::string folder, std::string cluster,
                                             IssueOptions options) {
  const std::string path = certificate_path(folder, options.role, options.name);
  auto present = co_await load_certificate(world, path);
  if (!present && present.error().code() != Code::not_found) co_return fail(present.error());
  if (!present) {
    auto first = co_await issue_anew(world, folder, cluster, options);
    co_return first;
  }
  CO_TRY_DO(check_holder(*present, path, cluster, options));
  auto authority = co_await authority_in(world, folder);
  const bool absent = authority && !authority->has_value();
  const bool made_anew = authority && !absent && **authority != present->claim().authority;
  const int64_t now = now_unix_s(world);
  if (!present->needs_renewal(now) && !made_anew) co_return present;

  const int64_t end = present->claim().not_after_unix_s;
  if (absent && now < end) co_return present;
  if (absent)
    co_return fail(Code::denied,
                   "the certificate in {} expired on {} and there is no authority in {} to renew "
                   "it; get a new one from the host that holds the cluster's authority",
                   path, utc_text(end), folder);
  auto renewed = co_await issue_anew(world, folder, cluster, options);
  if (renewed || made_anew || now >= end) co_return renewed;
  TUTTI_LOG(warn, "cannot renew a certificate",
            {{"file", path}, {"expires", utc_text(end)}, {"why", renewed.error().text()}});
  co_return present;
}

}  // namespace tutti::wire
