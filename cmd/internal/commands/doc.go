// Package commands is what the command lines of cmd/quorate do: it reads flags, prints text and says
// with which code the process ends. Each subcommand has a file. Package node is what a node does.
package commands
