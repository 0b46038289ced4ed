// Package tlsfiles reads TLS certificates from files and follows the files, so that renewed
// certificates are used without a restart. The relay uses it for the certificates that it shows to
// clients, origins and operators, and for the authorities by which it trusts clients and origins.
//
// Files may be written in place, renamed, or replaced by Kubernetes' swap of the ..data symlink.
// New connections use what was read last. Open connections stay as they are; VerifyClient says
// whether other authorities would still admit them.
//
// Files that cannot be used change nothing: the previous certificates stay in force, and the fault
// is logged and counted. A certificate and its key that are renewed one after the other are
// therefore never mixed.
//
// A certificate that is about to expire is logged, and stays in use after its expiry.
//
// # Concurrency
//
// A Source is safe for concurrent use. Run is called at most once.
package tlsfiles
