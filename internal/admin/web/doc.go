// Package web has the web page for operators: HTML, style and JavaScript modules, served as they
// are, without a build. The page reads its data from the admin server's other paths. Its files
// contain no data of the relay, and so need no token.
//
// The page cannot run text from clients or origins. It puts text only into text nodes. Its policy
// makes the browser refuse scripts, styles and markup made of strings, and requests to other
// servers.
//
// # Concurrency
//
// The handlers are safe for concurrent use. The package starts nothing.
package web
