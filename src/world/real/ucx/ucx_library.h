// Debian's libucx, loaded when it is first asked for: a machine without it runs everything else.
// One for the process, never unloaded. Any thread may call.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "base/result.h"

namespace tutti {

// The functions we use, by UCX's own names.
struct UcxLibrary {
  decltype(&::ucp_init_version) ucp_init_version;
  decltype(&::ucp_cleanup) ucp_cleanup;
  decltype(&::ucp_get_version_string) ucp_get_version_string;
  decltype(&::ucp_config_read) ucp_config_read;
  decltype(&::ucp_config_release) ucp_config_release;
  decltype(&::ucp_worker_create) ucp_worker_create;
  decltype(&::ucp_worker_destroy) ucp_worker_destroy;
  decltype(&::ucp_worker_get_address) ucp_worker_get_address;
  decltype(&::ucp_worker_release_address) ucp_worker_release_address;
  decltype(&::ucp_worker_set_am_recv_handler) ucp_worker_set_am_recv_handler;
  decltype(&::ucp_worker_progress) ucp_worker_progress;
  decltype(&::ucp_worker_get_efd) ucp_worker_get_efd;
  decltype(&::ucp_worker_arm) ucp_worker_arm;
  decltype(&::ucp_ep_create) ucp_ep_create;
  decltype(&::ucp_ep_close_nbx) ucp_ep_close_nbx;
  decltype(&::ucp_am_send_nbx) ucp_am_send_nbx;
  decltype(&::ucp_am_recv_data_nbx) ucp_am_recv_data_nbx;
  decltype(&::ucp_am_data_release) ucp_am_data_release;
  decltype(&::ucp_request_free) ucp_request_free;
  decltype(&::ucs_status_string) ucs_status_string;
};

// Code::unsupported, with what to install, where it is missing.
Result<const UcxLibrary*> ucx_library();

// An error of UCX in words.
Error ucx_error(const UcxLibrary& ucx, ucs_status_t status, std::string_view doing);

}  // namespace tutti
