// Package redact removes secrets: from messages before they are shown, and from the text of clients
// and origins before it is logged or kept.
//
// # What counts as a secret
//
// In a message (Message, JSON, Any), these are secrets:
//
//   - each field that the protos mark by udpa.annotations.sensitive, with everything below it;
//   - everything of a Secret except its name;
//   - text fields, data sources, and entries of maps and of google.protobuf.Struct, if their name
//     is that of a secret (Suspicious);
//   - the content of a pair whose name is that of a secret, such as a header, a cookie, or an input
//     of the matcher API and what it is compared with;
//   - the same in a string that is JSON;
//   - in other strings, such as Lua and YAML, a quoted literal behind the name of a secret, and the
//     rest of a line that begins with such a name;
//   - the keys in a JWT provider's local_jwks;
//   - what Text hides.
//
// An Any is opened if the program links its type. Otherwise only its type and its size are shown.
// Unknown fields are removed.
//
// In a message that quotes resources (Quoting), these are secrets: what is one in the resources. In
// the error of a parser (Parsing), each value is one.
//
// In text (Text): PEM blocks, the content of inline_string and inline_bytes, basic and bearer
// credentials, JSON web tokens, userinfo in URLs, and query parameters of URLs if their name is that
// of a secret. Text knows these by their form. It does not look for words such as "password" in prose,
// so a client's message that quotes a password in another form shows it.
//
// # Concurrency
//
// All functions are safe for concurrent use. They do not change what they are given.
package redact
