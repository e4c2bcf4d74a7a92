//go:build !planted

package planted

// Built says whether bugs can be planted in this build.
const Built = false

// On reports whether a bug is planted: in this build never.
func On(Bug) bool { return false }

// Plant panics: this build has no bugs to plant.
func Plant(Bug) { panic("planted: built without the tag planted") }
