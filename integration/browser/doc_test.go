// Package browser tests the admin page as users see it: the built relay between an origin of files
// and simulated clients, and a real Chromium that chromedp drives. It is a module of its own, so
// that building the relay does not need chromedp.
//
// CHROMIUM names the browser. Without it the tests look for one, and are skipped if there is none,
// unless CI is set. PAGE_SHOTS names a directory for pictures of the views; without it they are
// discarded.
package browser
