#!/bin/busybox sh
# The first process of the machine that has persistent memory: it brings up the two NVDIMMs, one as
# a filesystem with DAX and one as a node, shows the host's files read-only, and does its task.
#
# /task is a script for the host's shell; /empty is there if the NVDIMMs are new. The machine's last
# words are ENGRAM-EXIT and the task's status.

/bin/busybox --install -s /bin
export PATH=/bin

end() {
    echo "ENGRAM-EXIT $1 #"
    sync
    poweroff -f
}

mkdir -p /proc /sys /dev /mnt
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    insmod "/modules/$module" || { echo "module $module does not load"; end 90; }
done </modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 host /mnt || end 91
for place in dev proc sys; do
    mount --bind "/$place" "/mnt/$place" || end 92
done
mount -t tmpfs tmpfs /mnt/run || end 92
ip link set lo up

host() {
    chroot /mnt /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run "$@"
}

if [ -e /empty ]; then
    host ndctl create-namespace -f -e namespace0.0 -m fsdax -M mem >/dev/null || end 93
    host ndctl create-namespace -f -e namespace1.0 -m devdax -M mem >/dev/null || end 93
    host mkfs.ext4 -q -b 4096 /dev/pmem0 || end 94
fi
# Where the tests keep their pools: so they all run on persistent memory.
mkdir -p /mnt/dev/shm
mount -t ext4 -o dax /dev/pmem0 /mnt/dev/shm || end 95
cp /task /mnt/run/task
host /bin/sh /run/task
end $?
