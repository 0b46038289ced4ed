package spelling

import "fmt"

// Counted is a number with its noun, in the plural unless it is 1.
func Counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
