// Package redact takes secrets out of what is shown: of messages before they are
// dumped, and of text that others wrote before it is logged or kept.
//
// # What counts as a secret
//
// In a message (Message, JSON): what the protos mark by udpa.annotations.sensitive,
// with all that is below it; everything of a Secret but its name; strings and
// bytes of fields, entries of maps and of google.protobuf.Struct whose name is that
// of a secret (Suspicious); the values of headers and of query parameters with
// such a name; symmetric keys in a JWT provider's local_jwks; and, wherever it
// stands, what Text would hide. An Any is opened, also in another Any, if the
// program links its type. Of one that it cannot open, and of fields that it does not know, the type and
// the size are shown, and no byte.
//
// In text (Text): PEM blocks, also such as were cut; the values of inline_string,
// inline_bytes and of suspicious names, in the notations of JSON, text protos and
// key=value, at whatever depth of quoting; bearer and basic credentials; JSON web
// tokens; passwords in URLs, and before a host where one is redirected to or
// asked for (host_redirect: user:password@host); and long runs of base64. Envoy quotes the whole
// resource when it refuses one, so a client's word may hold a key.
//
// A value without quotes ends with its line or what it stands in, but behind name=, with
// no blank between, with the first blank, unless it is of several words (a phrase, or a scheme and what
// follows). It hides too much rather than too little. What it cannot know is a secret under
// an innocent name: a password in a Lua script, say, or in a node's metadata as
// "zone".
//
// # Concurrency
//
// All functions are safe for concurrent use. What they are given is not changed;
// what they return is the caller's.
package redact
