# The first process of a host: makes its root directory and becomes systemd.
#   boot.sh NAME DISK CGROUP, with a line on standard input when the host has its network device
set -e
name=$1 disk=$2 cgroup=$3
if [ -z "$4" ]; then
	read -r plugged
	hostname "$name"
	# What systemd makes lies below the cgroup that it begins in. Without hierarchies for controllers (v1) it does without.
	for root in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
		[ ! -e "$root/cgroup.procs" ] || { mkdir -p "$root/$cgroup/$name" && echo 0 >"$root/$cgroup/$name/cgroup.procs"; }
	done
	exec unshare --cgroup sh "$0" "$name" "$disk" "$cgroup" own
fi
mount --make-rprivate /
root=$disk/root first=
[ -d "$root" ] || first=yes
mkdir -p "$root" "$disk/upper" "$disk/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" "$root"
if [ -n "$first" ]; then # what this machine has is not the host's
	rm -rf "$root"/etc/systemd/system/*.wants "$root"/etc/systemd/system/*.requires "$root/etc/quorate" "$root"/var/lib/quorate* "$root/etc/machine-id"
	tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
	echo "$name" >"$root/etc/hostname"
fi
two=
[ -e /sys/fs/cgroup/cgroup.procs ] && two=yes
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
for d in null zero full random urandom tty; do
	touch "$root/dev/$d"
	mount --bind "/dev/$d" "$root/dev/$d"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
if [ -n "$two" ]; then
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
	mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
	mkdir "$root/sys/fs/cgroup/systemd" "$root/sys/fs/cgroup/unified"
	mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
fi
cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
mount --make-rshared / # as systemd has it: credentials of units are mounts
exec env -i container=quorate-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target
