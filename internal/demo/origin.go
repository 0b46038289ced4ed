package demo

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/google/renameio/v2"

	"xdsrelay/config"
	"xdsrelay/internal/xds"
)

// originFiles is a copy of config/demo, in which it changes files.
type originFiles struct {
	dir   string
	turns []turn
}

// turn is one kind of change: it replaces the number in all matches of find.
type turn struct {
	file string
	typ  xds.TypeURL
	find *regexp.Regexp // its group is a number
	say  string         // a format for the number
}

var versionInfo = regexp.MustCompile(`(?m)"?version_info"?: "(\d+)"`)

func newOriginFiles(dir string) (*originFiles, error) {
	src, err := fs.Sub(config.Demo, "demo")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(dir, src); err != nil {
		return nil, err
	}
	return &originFiles{dir: dir, turns: []turn{
		{"endpoints.json", xds.EndpointType, regexp.MustCompile(`"load_balancing_weight": (\d+)`), "endpoints: all weights are now %d"},
		{"routes.yaml", xds.RouteType, regexp.MustCompile(`timeout: (\d+)s`), "routes: the timeout of requests is now %d s"},
		{"clusters.yaml", xds.ClusterType, regexp.MustCompile(`connect_timeout: (\d+)s`), "clusters: the connect timeout is now %d s"},
	}}, nil
}

// change makes the n-th change, from 1. It calls begin with the type and the new version just
// before it replaces the file, and returns begin's channel.
func (o *originFiles) change(n int, begin func(xds.TypeURL, string) <-chan struct{}) (what string, answered <-chan struct{}, err error) {
	turn := o.turns[(n-1)%len(o.turns)]
	file := filepath.Join(o.dir, turn.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	number := n%9 + 1
	text = replaceNumber(text, turn.find, number)
	version := strconv.Itoa(n + 1)
	text = replaceNumber(text, versionInfo, n+1)
	answered = begin(turn.typ, version)
	return fmt.Sprintf(turn.say, number), answered, renameio.WriteFile(file, text, 0o600)
}

// replaceNumber replaces the number, the first group, in each match.
func replaceNumber(text []byte, find *regexp.Regexp, n int) []byte {
	return find.ReplaceAllFunc(text, func(m []byte) []byte {
		at := find.FindSubmatchIndex(m)
		return append(append(append([]byte{}, m[:at[2]]...), strconv.Itoa(n)...), m[at[3]:]...)
	})
}
