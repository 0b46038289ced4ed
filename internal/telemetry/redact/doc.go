// Package redact removes secrets: from messages before they are shown, and from the text of clients
// and origins before it is logged or kept.
//
// # What counts as a secret
//
// In a message (Message, JSON, Any), these are secrets:
//
//   - each field that the protos mark by udpa.annotations.sensitive, with everything below it;
//   - everything of a Secret except its name;
//   - text fields, data sources, entries of maps and of google.protobuf.Struct, and values of
//     headers and query parameters, if their name is that of a secret (Suspicious);
//   - the keys in a JWT provider's local_jwks;
//   - what Text hides.
//
// An Any is opened if the program links its type. Otherwise only its type and its size are shown.
// Unknown fields are removed.
//
// In text (Text): PEM blocks, the content of inline_string and inline_bytes, bearer
// tokens, JSON web tokens, and userinfo in URLs. Text knows these by their form. It does not
// look for words such as "password" in prose, so a client's message that quotes a password in
// another form shows it.
//
// # Concurrency
//
// All functions are safe for concurrent use. They do not change what they are given.
package redact
