//go:build !race

package apiserver_test

const underRace = false
