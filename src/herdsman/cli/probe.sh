for wait in 1 5 10 30; do
  said=$(curl -fsS -m 10 "$PROBE_URL/health/live" 2>&1 ||
    python3 -c 'import os, urllib.request as u; u.urlopen(os.environ["PROBE_URL"] + "/health/live", timeout=10)' 2>&1)
  if [ $? -eq 0 ]; then echo 'herdsman-probe: reached'; sleep 900; exit; fi
  sleep $wait
done
echo "herdsman-probe: $(echo "$said" | tail -n 1)"; sleep 900
