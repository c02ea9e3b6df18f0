// tutti jobs, submit, kill, signal and stuck: what people do with jobs they do not sit in front of.
#pragma once

namespace tutti::cli {

int jobs(int argc, char** argv);
int submit(int argc, char** argv);
int kill(int argc, char** argv);
int signal(int argc, char** argv);
int stuck(int argc, char** argv);

}  // namespace tutti::cli
