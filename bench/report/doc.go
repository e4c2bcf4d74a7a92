// Package report is what the reports of all bench commands share: who was measured, when, where
// and by which command; their JSON; and the frame of their pages.
package report
