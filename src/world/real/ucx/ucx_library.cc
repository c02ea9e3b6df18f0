#include "world/real/ucx/ucx_library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace tutti {

namespace {

constexpr const char* kFile = "libucp.so.0";  // which brings libucs
constexpr const char* kInstall = "install it with: apt-get install libucx0";

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// What a library does to its process without being asked: handlers for SIGSEGV and its kind, and
// lines on standard output of things that we tell as errors. Who sets UCX's variables has his way.
void make_modest(void* library) {
  void (*disable_signals)() = nullptr;
  if (getenv("UCX_HANDLE_ERRORS") == nullptr &&
      find(library, "ucs_debug_disable_signals", disable_signals))
    disable_signals();
  ucs_status_t (*set_option)(const char*, const char*) = nullptr;
  if (getenv("UCX_LOG_LEVEL") == nullptr && find(library, "ucs_global_opts_set_value", set_option))
    set_option("LOG_LEVEL", "fatal");
}

#define TUTTI_UCX_FIND(name) \
  if (!find(library, #name, found.name)) return #name

// The name of the function that is missing, or nullptr.
const char* find_all(void* library, UcxLibrary& found) {
  TUTTI_UCX_FIND(ucp_init_version);
  TUTTI_UCX_FIND(ucp_cleanup);
  TUTTI_UCX_FIND(ucp_get_version_string);
  TUTTI_UCX_FIND(ucp_config_read);
  TUTTI_UCX_FIND(ucp_config_release);
  TUTTI_UCX_FIND(ucp_worker_create);
  TUTTI_UCX_FIND(ucp_worker_destroy);
  TUTTI_UCX_FIND(ucp_worker_get_address);
  TUTTI_UCX_FIND(ucp_worker_release_address);
  TUTTI_UCX_FIND(ucp_worker_set_am_recv_handler);
  TUTTI_UCX_FIND(ucp_worker_progress);
  TUTTI_UCX_FIND(ucp_worker_get_efd);
  TUTTI_UCX_FIND(ucp_worker_arm);
  TUTTI_UCX_FIND(ucp_ep_create);
  TUTTI_UCX_FIND(ucp_ep_close_nbx);
  TUTTI_UCX_FIND(ucp_am_send_nbx);
  TUTTI_UCX_FIND(ucp_am_recv_data_nbx);
  TUTTI_UCX_FIND(ucp_am_data_release);
  TUTTI_UCX_FIND(ucp_request_free);
  TUTTI_UCX_FIND(ucs_status_string);
  return nullptr;
}

#undef TUTTI_UCX_FIND

Result<UcxLibrary> load() {
  void* library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return fail(Code::unsupported, "UCX is not on this machine ({}); {}", dlerror(), kInstall);
  UcxLibrary found{};
  if (const char* missing = find_all(library, found))
    return fail(Code::unsupported, "{} has no {}: it is too old; {}", kFile, missing, kInstall);
  make_modest(library);
  return found;
}

}  // namespace

Result<const UcxLibrary*> ucx_library() {
  static const Result<UcxLibrary> library = load();
  if (!library) return fail(library.error());
  return &*library;
}

Error ucx_error(const UcxLibrary& ucx, ucs_status_t status, std::string_view doing) {
  return {Code::unavailable, fmt::format("{}: {} (UCX)", doing, ucx.ucs_status_string(status))};
}

}  // namespace tutti
