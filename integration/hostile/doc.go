// Package hostile attacks the built binary while honest clients use it, and checks the bounds of
// each threat. The relay must not crash. Honest streams must not break, and must receive changes
// about as fast as before. After the attack the relay must have released its memory, descriptors
// and goroutines.
//
// An attack runs in a process of its own with the lowest priority, as if it had a machine of its
// own. So honest clients only feel its cost for the relay, and the relay's CPU use shows that cost.
//
// HOSTILE=full runs the long form, with the bounds that docs/security.md states, and writes its
// table to the file HOSTILE_TABLE; `make hostile` does. HOSTILE_SHOW prints the table in the short
// form too.
//
// # Concurrency
//
// The package has tests only. They run one after the other, because they measure.
package hostile
