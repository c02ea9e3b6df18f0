// A cluster's authority and the certificates of one host, in a folder:
//
//   <folder>/authority/key.pem           the authority's key, mode 0600
//   <folder>/authority/certificate.pem   its certificate, for everybody
//   <folder>/agent-node3.pem             a certificate with its key (certificates.h), mode 0600
//
// Whoever can read the authority's key can make anybody. Files appear whole or not at all; a crash
// may leave a name with ".new-" in it, which is safe to remove.
#pragma once

#include <string>

#include "wire/authority.h"
#include "world/world.h"

namespace tutti::wire {

// Loads the authority; makes it when the folder has none. Of several processes that make it at
// once, one wins and all get that one. An empty cluster means the name it has, or a new random one.
Task<Result<Authority>> open_authority(World& world, std::string folder, std::string cluster);

// The certificate of this role and name: the one in the folder while more than a third of its life
// is left and the authority is still the one that signed it, else a new one by the authority in
// that folder (made on first use). A host that has only a certificate, and no authority or none it
// may read, uses it to the end; then the error says how to renew it. A certificate of somebody else
// in its place is an error.
Task<Result<Certificate>> obtain_certificate(World& world, std::string folder, std::string cluster,
                                             IssueOptions options);

// Refuses a file that others may read, with the command that mends it.
Task<Result<Certificate>> load_certificate(World& world, std::string path);
Task<Result<void>> store_certificate(World& world, std::string path, Certificate certificate);
std::string certificate_path(const std::string& folder, Role role, const std::string& name);

}  // namespace tutti::wire
