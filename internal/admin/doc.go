// Package admin is what operators reach over HTTP: whether the relay is up,
// which keys, clients and origins it has, who refused what, how a node gets its
// key, metrics, profiles, the log level, and the order to drain.
//
// # Answers
//
// Answers are JSON, or YAML with ?format=yaml; errors are {"error": "..."}.
// What is not known in a query is an error and not ignored: a misspelt
// page_token would give the first page for ever.
//
// Lists are {"items": [...], "next_page_token": "..."}. ?limit= is how many items
// at most (1000 by default, 10000 at most); a page ends early when it has grown
// over 4 MiB. ?page_token= takes the next_page_token of the page before; it
// names the last item there and not a number of items, so that pages neither
// skip nor repeat what is there all the time, while other things come and go.
// Keys are in order of their text, clients in order of their coming.
//
// A key in a path is as xds.Key.String writes it, a node is its id; both are
// percent-encoded (slashes that separate plain elements may stay as they are).
// Several clients may have one id, so /clients/{node} is a list.
//
// A type of a client is SYNCED, NOT SENT, STALE or NACKED, since some time
// (inspect.TypeStatus). A type of a key has its newest versions, each with how many
// took, refused and lack it, how long ACKs took, and who lags behind
// (keystatus.Version); that is in /keys/{key}, and not in /keys.
// /progress/{key} says the same of one version for who waits for it: a version is
// what the relay, the origin, or its content calls it. It counts if it is the newest, or
// was since the waiting began: the answer has a mark that says since when that is, to be
// given along with the next question, and which is good for as long as the relay runs.
// While the relay drains the answer says so: its numbers are of those who are still there.
//
// /config_dump has what is held of a key, /resources the same by name alone, and
// /diff/{node} what a node refused, or does not have yet, against what it has. All are
// shown by package redact. What was replaced is kept for a while only
// (xds.Histories); what is older is not_held_any_more.
//
// POST /explain/diff takes rules, and says of the clients that there are which
// would have other keys by them. So nothing but ids and keys leaves the relay: a
// node's metadata may hold what is for nobody's eyes. A page of it ends after a while
// too, and may have no items; it says how many clients were looked at for it.
//
// POST /explain takes a node (envoy.config.core.v3.Node) as JSON, or
// {"node": ..., "peer": ...}.
//
// # The page
//
// A browser gets a page at / and under /ui/ (package web), which reads the other
// paths; its files say nothing of the relay and are open. /events tells it the
// fleet in numbers (package overview) for as long as it is open, as server-sent
// events; the numbers of clients, never clients. It keeps the token, if there is
// one, in its tab, and sends it as all others do: there is no cookie, which pages
// of others could make use of.
//
// # Who may
//
// With a token file every path but /ready, /live, /metrics and the page's files needs
// "Authorization: Bearer" and the token. Without one, only a loopback address
// is served, and only under the name localhost or as an IP address: a web page
// whose own name resolves to 127.0.0.1 would otherwise read all of it through
// its visitor's browser. What changes state is POST. Whatever a browser sends for a page
// of another origin is refused, by Sec-Fetch-Site and Origin, but for a link that
// somebody follows, and that one too where it costs much (/events, /metrics, profiles).
//
// # Concurrency
//
// A Server is safe for concurrent use. It keeps no state of its own but whether
// it is ready. What it shows it reads through Clients, Keys, Origins and Rules,
// which copy what they return. Few requests read at a time and the others
// wait; nobody has the turn to read while a body is read or an answer written;
// and what is held for answers is bounded by a page, for a few of them. So
// neither many readers nor slow ones reach the data path.
//
// New starts nothing. Run returns when all connections have ended.
package admin
