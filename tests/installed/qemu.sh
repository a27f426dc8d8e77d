# driven: firmware under TCG, its monitor
# packages: qemu-system-x86
printf '{"execute":"qmp_capabilities"}\n{"execute":"query-status"}\n{"execute":"quit"}\n' | qemu-system-x86_64 -accel tcg -display none -nodefaults -m 32 -qmp stdio > out
grep -q running out
