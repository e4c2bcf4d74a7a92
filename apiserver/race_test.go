//go:build race

package apiserver_test

// underRace says that everything takes ten times as long.
const underRace = true
