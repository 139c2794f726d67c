# One image for all of nvshare: docker build -t nvshare/nvshare:0.1.0 .
# The programs of the test plan: docker build --target workloads -t nvshare/workloads:0.1.0 .
# Dockerfile.scheduler is this file too.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
RUN apt-get update -qq \
 && apt-get install -qqy --no-install-recommends gcc libc6-dev make binutils
WORKDIR /src
COPY constraints.txt pyproject.toml setup.py MANIFEST.in README.md README.zh-CN.md CHANGELOG.md LICENSE Makefile ./
RUN python3 -m venv /build \
 && /build/bin/pip install --quiet -c constraints.txt setuptools wheel mypy grpcio-tools ziglang
COPY native native
# The library runs in containers of any age: it asks for no glibc later than 2.17. So does the simulated driver.
RUN make release-libs release-simgpu ZIG_PYTHON=/build/bin/python
COPY src src
RUN NVSHARE_COMPILE=1 /build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels .
RUN python3 -m venv /opt/nvshare \
 && /opt/nvshare/bin/pip install --quiet -c constraints.txt "$(ls /wheels/*.whl)[k8s]" \
 && lib=$(/opt/nvshare/bin/python -c 'import nvshare, pathlib; print(pathlib.Path(nvshare.__file__).parent / "lib")') \
 && cp build/release/$(uname -m)/libnvshare.so "$lib/" \
 && cp build/release/simgpu-$(uname -m)/lib*.so.1 "$lib/simgpu/" \
 && ln -s "$lib/simgpu" /opt/nvshare/simgpu \
 && /opt/nvshare/bin/pip uninstall --quiet --yes pip setuptools

FROM ${BASE} AS runtime
COPY --from=build /opt/nvshare /opt/nvshare
ENV PATH=/opt/nvshare/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# The scheduler, the node monitor, the cluster exporter, and the monitor under the port of k8s-vgpu-monitor.
EXPOSE 9402 9394 31993 8080
ENTRYPOINT ["nvshare"]

# It needs no rights at all.
FROM runtime AS workloads
USER 65532:65532
ENTRYPOINT ["python", "-m", "nvshare.workloads"]

# Its daemons are root: programs of all users reach the one's socket, and the kubelet's sockets are root's.
FROM runtime AS scheduler
CMD ["scheduler"]
