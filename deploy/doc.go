// Package deploy holds what an operator installs: systemd units, sysusers,
// tmpfiles and the environment files. It has no code; its tests have systemd's
// own tools read every file, and test/system/hosts runs the units.
package deploy
