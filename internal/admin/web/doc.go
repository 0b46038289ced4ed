// Package web is the web page for operators: HTML, style and JavaScript
// modules, as they are, without a build. All that it shows it reads from the
// admin server's other paths; these files say nothing of the relay, and so need
// no token.
//
// The page holds nothing that could run what clients or origins say: texts
// become text nodes, and the policy that goes with it has the browser refuse
// scripts, styles and markup made of strings, and requests to anywhere else.
//
// # Concurrency
//
// The handlers are safe for concurrent use. Nothing is started.
package web
