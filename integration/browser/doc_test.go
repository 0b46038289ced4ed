// Package browser tests the admin page as people have it: the built relay
// between an origin of files and simulated clients, and a real Chromium, driven
// by chromedp, that looks at it. A module of its own: nobody who builds the
// relay needs what drives a browser.
//
// CHROMIUM names the browser; without it one is looked for, and if there is none
// the tests are skipped, unless CI is set. PAGE_SHOTS names a directory for
// pictures of the views; without it they are taken and thrown away.
package browser
