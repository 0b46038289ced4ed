package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xdsrelay/internal/admin/sources"
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
	}, list[sources.Origin]{path: "/origins", empty: "no origins", columns: originColumns})
}

func originColumns(now time.Time) []column[sources.Origin] {
	return []column[sources.Origin]{
		textColumn("ORIGIN", func(o *sources.Origin) string { return o.Name }),
		{"STATE", func(o *sources.Origin) cell { return originState(o, now) }},
		textColumn("STREAMS", func(o *sources.Origin) string { return strconv.Itoa(o.Streams) }),
		{"SILENT", func(o *sources.Origin) cell { return alarming(o.Silent, yellow) }},
		textColumn("CONNECTIONS", func(o *sources.Origin) string { return strconv.Itoa(o.Connections) }),
		textColumn("RECONNECTS", func(o *sources.Origin) string { return strconv.FormatUint(o.Reconnects, 10) }),
		textColumn("ADDRESS", func(o *sources.Origin) string { return o.Address }),
		{"PROBLEM", func(o *sources.Origin) cell { return problem(originProblem(o)) }},
	}
}

// originProblem says what is wrong with an origin; empty: nothing is.
func originProblem(o *sources.Origin) string {
	var says []string
	if o.Away {
		says = append(says, o.LastError)
	}
	for _, r := range o.Rejected {
		says = append(says, fmt.Sprintf("the relay rejects %s of %s: %s", r.Type, counted(r.Keys, "key"), r.Error))
	}
	return onOneLine(strings.Join(append(says, o.Faults...), "; "))
}

// originState is the state of an origin, with its age if it should not last.
func originState(o *sources.Origin, now time.Time) cell {
	since := func(state string, t *time.Time, colour string) cell {
		if t != nil {
			state += " " + age(now.Sub(*t))
		}
		return cell{state, colour}
	}
	switch {
	case o.Away && o.Reached == nil:
		return since("never reached", o.AwaySince, red)
	case o.Away:
		return since("away", o.AwaySince, red)
	case o.Silent > 0 && o.Silent < o.Streams:
		return cell{fmt.Sprintf("connected, %d silent", o.Silent), yellow}
	case o.Silent > 0:
		return since("silent", o.SilentSince, yellow)
	case o.Connections == 0 && o.Reached == nil:
		return cell{"connecting", yellow}
	case o.Connections == 0:
		return cell{"not connected", yellow}
	}
	return cell{"connected", green}
}
