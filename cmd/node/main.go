// Command node is quorate by another name. Build cmd/quorate: the go command names a program after its
// directory.
package main

import (
	"os"

	"github.com/quorate/quorate/cmd/internal/commands"
)

// Set by the linker.
var version, commit string

func main() { os.Exit(commands.Run(version, commit)) }
