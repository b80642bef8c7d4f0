# What a shell does with files, in the folder that it is given.
set -e
cd "$1"
cat <<END > here
a here-document
of two lines
END
cat here
cat > plain <<'END'
one
two
END
(cat plain; cat here) | sort | cat > sorted
cat sorted
(cd / && pwd)
mkdir sub
(cd sub && cat ../plain > copy && cat copy)
value=$(cat plain)
/bin/echo "$value" | cat
value=$(< plain)
/bin/echo "$value" | cat
cat plain >> sorted 2>&1
cat sorted | wc -l
{ cat plain; cat here; } > both
wc -c < both
for number in 1 2 3; do cat plain; done > loop
cat loop | wc -l
(sleep 0.1; cat plain > later) &
wait
cat later
exec 5< plain
cat <&5
exec 5<&-
exec 6> log
cat plain >&6
cat here >&6
exec 6>&-
wc -l < log
while read -r line; do /bin/echo "got $line"; done < plain
(read -r line; cat) < plain
cat > up <<'END'
#!/bin/sh
cat "$1" | tr a-z A-Z
END
chmod +x up
./up plain
PATH=$PWD:$PATH up plain | cat -n
cp /bin/cat copied
./copied plain
/bin/echo plain | xargs cat
env | grep -c '^ENGRAM_RUN_' | cat
trap 'cat plain' EXIT
