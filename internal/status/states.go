package status

import (
	"cmp"
	"fmt"
	"strings"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/terminal"
)

// Colours are the colours of the states.
var Colours = map[string]string{inspect.StateSynced: terminal.Green, inspect.StateStale: terminal.Yellow, inspect.StateUnconfirmed: terminal.Yellow, inspect.StateNotSent: terminal.Faint, inspect.StateNacked: terminal.Red}

// statesText has the number of each state that occurs.
func statesText(t terminal.Style, states map[string]int) string {
	var sum []string
	for _, s := range inspect.States {
		if states[s] > 0 {
			sum = append(sum, fmt.Sprintf("%d %s", states[s], t.Colour(Colours[s], s)))
		}
	}
	return cmp.Or(strings.Join(sum, ", "), "none")
}

// StateColumns are a column for each state, with the number of types in it.
func StateColumns[T any](states func(*T) map[string]int) (columns []terminal.Column[T]) {
	for _, s := range inspect.States {
		colour := ""
		if s == inspect.StateNacked || s == inspect.StateStale {
			colour = Colours[s]
		}
		columns = append(columns, terminal.ColumnOf(s, func(row *T) terminal.Cell { return terminal.Alarming(states(row)[s], colour) }))
	}
	return columns
}

// StatesOfKey sums up the states of a key's types.
func StatesOfKey(k *keystatus.Key) map[string]int {
	sum := map[string]int{}
	for i := range k.Types {
		for s, n := range k.Types[i].States {
			sum[s] += n
		}
	}
	return sum
}
