package filewatch

import (
	"os"
	"path/filepath"
)

// maxLinks is how many symlinks a path may lead through, as in Linux.
const maxLinks = 40

// Trail are the symlinks that a path leads through, and what it leads to: all
// paths at which a change is one of what the path means. None has a symlink above
// it.
func Trail(path string) []string {
	var out []string
	for range maxLinks {
		link, target := firstLink(path)
		if link == "" {
			return append(out, path)
		}
		out = append(out, link)
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, path[len(link):])
	}
	return out
}

// firstLink is the first symlink in a path, and what stands in it.
func firstLink(path string) (link, target string) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != filepath.Separator {
			continue
		}
		if target, err := os.Readlink(path[:i]); err == nil {
			return path[:i], target
		}
	}
	return "", ""
}
