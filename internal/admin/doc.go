// Package admin is the HTTP API for operators. It shows whether the relay is ready, its keys,
// clients, origins and members, NACKs, how a node gets its key, metrics and profiles. It sets the log level
// and starts draining.
//
// # Answers
//
// Answers are JSON, or YAML with ?format=yaml; errors are {"error": "..."}. An unknown query
// parameter is an error: a misspelt page_token would otherwise give the first page for ever.
//
// Lists are {"items": [...], "next_page_token": "..."}. ?limit= bounds the items of a page (1000 by
// default, 10000 at most); a page also ends when it has over 4 MiB. ?page_token= takes the
// next_page_token of the page before. The token names the last item there, not a number of items:
// pages neither skip nor repeat an item that is there all the time, while others come and go. Keys
// are ordered by text, clients by the start of their streams.
//
// A key in a path is in the form of xds.Key.String, a node is its id. Both are percent-encoded;
// slashes between plain elements may stay. Several clients may have one id, so /clients/{node} is a
// list.
//
// A type of a client is SYNCED, UNCONFIRMED, NOT SENT, STALE or NACKED, since some time
// (inspect.TypeStatus). A type of a key has its newest versions: how many clients acknowledged, NACKed and do not have
// each, how long ACKs took, and the client that lags most (keystatus.Version). /keys/{key} has the
// versions, /keys does not.
//
// /progress/{key} reports the progress of one version for a client that waits for it. The version
// is the relay's, the origin's or the content's name of it. It counts if it is the newest, or was
// at some time since the wait began. The answer has a mark, which encodes when the wait began; the
// next request has to repeat it. A mark is valid while the relay runs. While the relay drains, the
// answer says so, because its numbers then cover only the remaining clients.
//
// /config_dump shows what a key holds, and /resources the same without the content. /diff/{node}
// compares what a node NACKed or does not have yet with what it has. Package redact hides secrets
// in all of them. no_key is the reason why a type has no key. Replaced resources are kept for a
// while only (snapshot.UndoLogs); older ones are not_held_any_more.
//
// POST /explain/diff takes rules, and returns the present clients that would have other keys under
// them. It returns only ids and keys, because a node's metadata may be confidential. A page also
// ends after a time, and may have no items; it says how many clients it examined.
//
// POST /explain takes a node (envoy.config.core.v3.Node) as JSON, or {"node": ..., "peer": ...}. As
// application/yaml it takes what relay explain reads from files: a node or an Envoy bootstrap in
// YAML or JSON, and the peer as a second YAML document.
//
// /members/{member}/... has the answer of another member of the cluster to the rest of the path
// (package memberread). Members read only values of each other: no metrics, profiles or events.
//
// # The page
//
// A browser gets a page under /ui/ (package web), which reads the other paths, also behind a proxy
// that adds a prefix. Its files contain no data of the relay and need no token. While the page is
// open, /events sends it the fleet in numbers (package overview) as server-sent events, without data
// of single clients. The page keeps the token in its tab and sends it in a header. There is no
// cookie, which another site's page could use.
//
// # Access
//
// With a token file every path but /ready, /live, /metrics and the page's files needs
// "Authorization: Bearer" and the token. Without one, the server listens on loopback addresses
// only, and answers only requests to localhost or an IP address. Otherwise a web page with a name
// that resolves to 127.0.0.1 could read everything through a browser on the host. Only POST changes
// state. By Sec-Fetch-Site and Origin the server refuses requests that a browser sends for another
// site's page. A link that a user follows is allowed, except to /events, /metrics and profiles,
// which cost much.
//
// # Concurrency
//
// A Server is safe for concurrent use. Its own state is only the phase and the token. It reads
// everything else through Clients, Keys, Origins, Members and Rules, which return copies. One request reads
// at a time, and the others wait. No request holds that turn while it reads its body or writes its
// answer. The memory for answers is bounded: a page each, for a few requests. So neither many nor
// slow requests affect the data path.
//
// New starts nothing. Run returns when all connections have ended.
package admin
