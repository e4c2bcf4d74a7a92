// Package deploy holds what an operator installs: systemd units, sysusers,
// tmpfiles and the environment file. It has no code; its tests have systemd's
// own tools read every file.
package deploy
