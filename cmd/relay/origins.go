package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/spelling"
	"xdsrelay/internal/terminal"
	"xdsrelay/internal/upstream"
)

func newOriginsCmd() *cobra.Command {
	return newListCmd(&cobra.Command{
		Use:   "origins",
		Short: "List the origins of a running relay",
		Long: `List the origins of a running relay, in the order of preference.

  STATE       connected; not connected: the connection was lost just now; away: the
              relay cannot connect, or gets no response; never reached: the same
              since the relay started; silent: the origin accepts streams and does
              not answer; connected, 2 silent: it answers on others
  STREAMS     open streams, one or two for each key that uses the origin
  SILENT      streams without any response
  RECONNECTS  how often a stream to it ended or could not be opened
  PROBLEM     the last error of an origin that is away, which of its responses the
              relay rejects, and the faults of its files`,
		Example: `  relay origins
  relay origins --admin 127.0.0.1:19000 -o json`,
	}, list[upstream.OriginStatus]{path: "/origins", empty: "no origins", columns: originColumns})
}

func originColumns(now time.Time) []terminal.Column[upstream.OriginStatus] {
	return []terminal.Column[upstream.OriginStatus]{
		terminal.TextColumn("ORIGIN", func(o *upstream.OriginStatus) string { return o.Name }),
		terminal.ColumnOf("STATE", func(o *upstream.OriginStatus) terminal.Cell { return originState(o, now) }),
		terminal.TextColumn("STREAMS", func(o *upstream.OriginStatus) string { return strconv.Itoa(o.Streams) }),
		terminal.ColumnOf("SILENT", func(o *upstream.OriginStatus) terminal.Cell { return terminal.Alarming(o.Silent, terminal.Yellow) }),
		terminal.TextColumn("CONNECTIONS", func(o *upstream.OriginStatus) string { return strconv.Itoa(o.Connections) }),
		terminal.TextColumn("RECONNECTS", func(o *upstream.OriginStatus) string { return strconv.FormatUint(o.Reconnects, 10) }),
		terminal.TextColumn("ADDRESS", func(o *upstream.OriginStatus) string { return o.Address }),
		terminal.ColumnOf("PROBLEM", func(o *upstream.OriginStatus) terminal.Cell { return terminal.Problem(originProblem(o)) }).Message(),
	}
}

// originProblem says what is wrong with an origin; empty: nothing is.
func originProblem(o *upstream.OriginStatus) string {
	var says []string
	if o.Away {
		says = append(says, o.LastError)
	}
	for _, r := range o.Rejected {
		says = append(says, fmt.Sprintf("the relay rejects %s of %s: %s", r.Type, spelling.Counted(r.Keys, "key"), r.Error))
	}
	return terminal.OneLine(strings.Join(append(says, o.Faults...), "; "))
}

// originState is the state of an origin, with its age if it should not last.
func originState(o *upstream.OriginStatus, now time.Time) terminal.Cell {
	since := func(state string, t time.Time, colour string) terminal.Cell {
		if !t.IsZero() {
			state += " " + terminal.Age(now.Sub(t))
		}
		return terminal.Coloured(state, colour)
	}
	switch {
	case o.Away && o.Reached.IsZero():
		return since("never reached", o.AwaySince, terminal.Red)
	case o.Away:
		return since("away", o.AwaySince, terminal.Red)
	case o.Silent > 0 && o.Silent < o.Streams:
		return terminal.Coloured(fmt.Sprintf("connected, %d silent", o.Silent), terminal.Yellow)
	case o.Silent > 0:
		return since("silent", o.SilentSince, terminal.Yellow)
	case o.Connections == 0 && o.Reached.IsZero():
		return terminal.Coloured("connecting", terminal.Yellow)
	case o.Connections == 0:
		return terminal.Coloured("not connected", terminal.Yellow)
	}
	return terminal.Coloured("connected", terminal.Green)
}
